/* Runs a program that is built as a library, the file $LATE: it is loaded when this one runs already, and all its
 * instructions with it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    void *library = dlopen(getenv("LATE"), RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(library, "main");
    return run ? run(count, arguments) : 1;
}
