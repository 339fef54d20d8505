/* usage.h - how much memory of each GPU of this machine is in use, and by whom: `sluice-reco usage` */
#ifndef SLUICE_USAGE_H
#define SLUICE_USAGE_H

/* Prints {"usage": [{"id": PCI address, "used": bytes, "pids": [...]}]}. Opens no device, so that asking takes no memory of it. Exit status. */
int usage_main(int argc, char **argv);

#endif
