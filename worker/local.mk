# worker/
