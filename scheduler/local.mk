# scheduler/
