"""How fast does the operator create the pods of many small jobs, against a bare parallel loop?

    PYTHONPATH=operator:tests:trainer-image python bench/create_100x4.py

The operator's time includes what the loop does not do: the creation of the jobs themselves, and for each of them a
dry run, a status and a Service.
"""

import creation

TARGET = 1.5

if __name__ == "__main__":
    chosen = creation.options(__doc__, jobs=100, workers=4)
    creation.compare(jobs=chosen.jobs, workers=chosen.workers, rounds=chosen.rounds, target=TARGET)
