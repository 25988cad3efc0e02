/* Each rank sums an array over all ranks, ten times, and compares the result with what it must be. */
#include <mpi.h>
#include <stdio.h>

#define MANY (1 << 20)

static double given[MANY], sums[MANY];

int main(int count, char **arguments) {
    int rank, ranks, wrong = 0, all;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < MANY; i++)
            given[i] = rank + (i + round) % 7;
        MPI_Allreduce(given, sums, MANY, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < MANY; i++)
            wrong += sums[i] != ranks * (ranks - 1) / 2 + ranks * ((i + round) % 7);
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d sums wrong\n", ranks, all);
    MPI_Finalize();
    return all != 0;
}
