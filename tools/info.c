/* info.c: swimlane-info: what this machine offers to the library and what the library makes of it,
 * for people and for reports of faults. Starts without GPU, driver, rdma-core or NIC. Layer:
 * tools. */
#include "tools/info.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void help(void)
{
    puts("usage: swimlane-info [--json] [--nodes N] [--ranks-per-node N] [--root DIR]\n"
         "                     [--gpu PCI]\n"
         "Lists what GPUs, NICs and kernel of this machine offer, which transports work here and\n"
         "why others do not, what ranks like this one would choose, and every variable. A problem\n"
         "stands beside the fact.\n\n"
         "  --json              one JSON object\n"
         "  --nodes N           layout of the choice, 1 to 4096 (2)\n"
         "  --ranks-per-node N  likewise, 1 to 4096 (1)\n"
         "  --root DIR          folder with sys/, proc/ and dev/ of another machine (/)\n"
         "  --gpu PCI           GPU that distances are from, e.g. 0000:18:00.0 (each GPU)");
}

static bool take_number(const char *text, int *number_p)
{
    char *end;
    const long n = text ? strtol(text, &end, 10) : 0;

    if (text == NULL || *end != '\0' || n < 1 || n > 4096)
        return false;
    *number_p = (int)n;
    return true;
}

/* A folder there is. */
static bool take_root(const char *text, const char **root_p)
{
    struct stat what;

    if (text == NULL || stat(text, &what) != 0 || !S_ISDIR(what.st_mode))
        return false;
    *root_p = text;
    return true;
}

/* domain:bus:device.function in hexadecimal, as /sys names it. */
static bool take_gpu(const char *text, const char **gpu_p)
{
    const char *form = "xxxx:xx:xx.x";

    if (text == NULL || strlen(text) != strlen(form))
        return false;
    for (size_t i = 0; form[i]; i++)
        if (form[i] == 'x' ? !isxdigit((unsigned char)text[i]) : text[i] != form[i])
            return false;
    *gpu_p = text;
    return true;
}

enum taken { TAKEN, BAD_VALUE, UNKNOWN };

/* An option with a value, NULL: none follows. *means_p: what it may be. */
static enum taken option_take(struct info_options *o, const char *word, const char *value,
                              const char **means_p)
{
    bool good;

    *means_p = "a number of 1 to 4096";
    if (strcmp(word, "--nodes") == 0) {
        good = take_number(value, &o->nodes);
    } else if (strcmp(word, "--ranks-per-node") == 0) {
        good = take_number(value, &o->ranks_per_node);
    } else if (strcmp(word, "--root") == 0) {
        *means_p = "a folder that there is";
        good = take_root(value, &o->root);
    } else if (strcmp(word, "--gpu") == 0) {
        *means_p = "a PCI address like 0000:18:00.0";
        good = take_gpu(value, &o->gpu);
    } else {
        return UNKNOWN;
    }
    return good ? TAKEN : BAD_VALUE;
}

/* 0: run; else what main returns, plus one. */
static int parse_arguments(struct info_options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL, *means;

        if (strcmp(word, "--help") == 0) {
            help();
            return 1;
        }
        if (strcmp(word, "--json") == 0) {
            o->json = true;
            continue;
        }
        switch (option_take(o, word, next, &means)) {
        case TAKEN:
            i++;
            break;
        case BAD_VALUE:
            fprintf(stderr, "swimlane-info: %s needs %s%s%s%s\n", word, means,
                    next ? ", not '" : "", next ? next : "", next ? "'" : "");
            return 3;
        case UNKNOWN:
            fprintf(stderr, "swimlane-info: unknown option %s (--help lists the options)\n", word);
            return 3;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct swl_options options;
    struct info_options o = {.nodes = 2, .ranks_per_node = 1, .root = "/"};
    struct info_out out = {.writer = {.file = stdout}};
    const int answer = parse_arguments(&o, argc, argv);

    if (answer)
        return answer - 1;
    swl_options_read(&options); /* warns about malformed values */
    o.options = &options;
    out.json = o.json;
    info_open(&out, NULL, '{');
    info_build(&out);
    info_host(&out, &o);
    info_gpus(&out);
    info_nics(&out, &o);
    info_transports(&out, &o);
    info_variables(&out);
    info_unknown_variables(&out);
    info_presets(&out, &o);
    info_close(&out, '}');
    if (o.json)
        puts("");
    return ferror(stdout) ? 1 : 0;
}
