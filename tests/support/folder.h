/* folder.h: how much is in a folder, as that of a process's open files.
 *
 * Layer: tests. */
#ifndef SWL_FOLDER_H
#define SWL_FOLDER_H

#include <dirent.h>

/* With those for the folder itself and the one above; 0 where there is none. */
inline int folder_entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;

    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

inline int open_files()
{
    return folder_entries("/proc/self/fd");
}

#endif
