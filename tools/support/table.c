/* table.c: see table.h. */
#include "tools/support/table.h"

#include <stdarg.h>
#include <string.h>

void swl_table_row(struct swl_table *table)
{
    if (table->nrows < SWL_TABLE_ROWS)
        table->nrows++;
}

void swl_table_text(struct swl_table *table, int column, const char *format, ...)
{
    va_list list;

    if (column >= SWL_TABLE_COLUMNS || table->nrows == 0)
        return;
    if (column >= table->ncolumns)
        table->ncolumns = column + 1;
    va_start(list, format);
    vsnprintf(table->cell[table->nrows - 1][column], SWL_TABLE_CELL, format, list);
    va_end(list);
}

void swl_table_print(const struct swl_table *table, FILE *file)
{
    int width[SWL_TABLE_COLUMNS] = {0};

    for (int r = 0; r < table->nrows; r++)
        for (int c = 0; c < table->ncolumns; c++) {
            int n = (int)strlen(table->cell[r][c]);

            if (n > width[c])
                width[c] = n;
        }
    for (int r = 0; r < table->nrows; r++) {
        fprintf(file, "  %-*s", width[0], table->cell[r][0]);
        for (int c = 1; c < table->ncolumns; c++)
            fprintf(file, "  %*s", width[c], table->cell[r][c]);
        fputc('\n', file);
        if (r > 0)
            continue;
        fputs("  ", file);
        for (int c = 0; c < table->ncolumns; c++)
            for (int i = c ? -2 : 0; i < width[c]; i++)
                fputc('-', file);
        fputc('\n', file);
    }
}
