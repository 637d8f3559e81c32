"""How fast does the operator create the pods of one large job, against a bare parallel loop?

PYTHONPATH=operator:tests:trainer-image python bench/create_500.py
"""

import creation

TARGET = 1.25

if __name__ == "__main__":
    chosen = creation.options(__doc__, jobs=1, workers=500)
    creation.compare(jobs=chosen.jobs, workers=chosen.workers, rounds=chosen.rounds, target=TARGET)
