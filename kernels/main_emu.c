/* main_emu.c - the reconstruction alone with the emulated device as one more backend, "emu"; for tests */
#include "backend/bk_emu.h"
#include "backend/bk_load.h"
#include "cmd.h"

int main(int argc, char **argv)
{
    bk_register(bk_emu_entry());
    return kernels_cmd(argc, argv);
}
