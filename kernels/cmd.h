/* cmd.h - the local commands: reco, simulate, compare, devices, workflows, workflow check, tf
 *
 * argv[0] is the command's own name. Each returns an exit code: 0 done, 1 failed, 2 usage,
 * 3 a named file does not exist, 10 done but some TFs failed or some files were skipped.
 */
#ifndef CMD_H
#define CMD_H

enum cmd_exit {
    CMD_DONE = 0, CMD_FAILED = 1, CMD_USAGE = 2, CMD_NOT_THERE = 3, CMD_PARTLY = 10,
};

int kernels_cmd_reco(int argc, char **argv);
int kernels_cmd_tf(int argc, char **argv);              /* tf info|verify|dump FILE... */
int kernels_cmd_workflows(int argc, char **argv);
int kernels_cmd_workflow(int argc, char **argv);        /* workflow check NAME|FILE */
int kernels_cmd_workflow_check(int argc, char **argv);  /* the same without the word check */
int kernels_cmd_devices(int argc, char **argv);
int kernels_cmd_compare(int argc, char **argv);
int kernels_cmd_simulate(int argc, char **argv);

/* Runs the command named argv[1]; 2 and a list of commands when there is no such one. */
int kernels_cmd(int argc, char **argv);

#endif
