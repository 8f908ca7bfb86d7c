/* table.h: a table for people: aligned columns, numbers to the right.
 *
 * Layer: tools/support. The caller owns the table; cells are copied. */
#ifndef SWL_TABLE_H
#define SWL_TABLE_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SWL_TABLE_COLUMNS = 12, SWL_TABLE_ROWS = 32, SWL_TABLE_CELL = 32 };

struct swl_table {
    int ncolumns, nrows; /* the first row is the heading */
    char cell[SWL_TABLE_ROWS][SWL_TABLE_COLUMNS][SWL_TABLE_CELL];
};

/* Start a row; cells beyond the table's size are left out. */
void swl_table_row(struct swl_table *table);
void swl_table_text(struct swl_table *table, int column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void swl_table_print(const struct swl_table *table, FILE *file);

#ifdef __cplusplus
}
#endif
#endif
