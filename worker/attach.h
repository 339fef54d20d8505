/* attach.h - the reconstruction process as the worker's child: doc/reco-contract.md is what it keeps to */
#ifndef SLUICE_ATTACH_H
#define SLUICE_ATTACH_H

/* Serves until the worker closes. Returns an exit status. */
int attach_main(int argc, char **argv);

#endif
