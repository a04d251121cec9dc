"""Out-of-domain skills: short single-turn tasks with exact answers, unrelated to any household.

They are taught to the lab base model and never trained on afterwards, so that what a method
makes the model forget shows. One file a skill: a generator of items and an exact check.

    items = draw_items("sorting", "eval", n=100, seed=0)
    items[0].question                      # 'sort down: 3 9 1 4'
    check(items[0], Message("assistant", "9 4 3 1"))     # True
"""
