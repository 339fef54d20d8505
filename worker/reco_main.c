/* reco_main.c - sluice-reco: the reconstruction, as the worker's child (attach, usage) or by hand (all other commands) */
#include "config.h"

#include "attach.h"
#include "cmd.h"
#include "usage.h"

#include <string.h>

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "attach") == 0)
        return attach_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "usage") == 0)
        return usage_main(argc - 1, argv + 1);
    return kernels_cmd(argc, argv);
}
