/* main.c - the reconstruction alone: `make -C kernels standalone` needs a C compiler and make */
#include "cmd.h"

int main(int argc, char **argv)
{
    return kernels_cmd(argc, argv);
}
