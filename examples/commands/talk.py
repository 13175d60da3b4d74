"""A program that talks to traind: metrics, a stop that it obeys, checkpoints that it goes on from. Usage: talk.py STEPS"""
import json
import os
import sys

import traind

STEPS = int(sys.argv[1])


def save(step, value):
    path = os.path.abspath(f"state-{step}.json")
    with open(path + ".new", "w") as f:
        json.dump({"step": step, "value": value}, f)
    os.replace(path + ".new", path)
    traind.register_checkpoint(path, step=step, value=value)


def main():
    traind.init()
    step, value = 0, 100.0
    if traind.resume_from():
        with open(traind.resume_from()) as f:
            kept = json.load(f)
        step, value = kept["step"], kept["value"]
    while step < STEPS:
        step, value = step + 1, value * 0.99
        traind.log({"value": value}, step=step, total_steps=STEPS)
        if step % 100 == 0 or traind.should_save() or traind.should_stop():
            save(step, value)
        if traind.should_stop():
            return
    print(f"done: step {step}, value {value:.4f}")


main()
