/* bk_emu.h - the emulated device: for tests, registered by them */
#ifndef BK_EMU_H
#define BK_EMU_H

#include "bk.h"

const struct bk_ops *bk_emu_entry(void);

#endif
