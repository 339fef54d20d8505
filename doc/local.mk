# doc/ - man pages (mdoc), and what a developer reads
dist_man_MANS += %D%/sluice.1 %D%/sluice.conf.5 %D%/sluiced.8 %D%/sluice-source.8 %D%/sluice-worker.8
dist_doc_DATA += %D%/path.md %D%/protocol.md %D%/reco-contract.md %D%/states.md %D%/simulate.md %D%/slurm.md
