"""Whether the machine was quiet: the cores' pace, which samples are the calm machine's, how noisy it was."""
