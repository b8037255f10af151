// Stands for the agent where only its being preloaded matters.
int traincheck_ctl_empty_agent = 1;
