/* What a dynamic Go program has in its data, and no other program. */
#include <stdio.h>

__attribute__((aligned(16), used)) static volatile char information[32] = "\xff Go buildinf:";

int main(void) {
    puts("ran");
    return 0;
}
