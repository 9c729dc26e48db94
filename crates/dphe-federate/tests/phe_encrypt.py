"""How long python-paillier takes to encrypt a number: processor seconds, the mean of some.

Reads the length of the key and how many numbers to encrypt from the command line, prints the seconds of one.
"""

import random
import sys
import time

from phe import paillier

bits, count = int(sys.argv[1]), int(sys.argv[2])
public, _ = paillier.generate_paillier_keypair(n_length=bits)
numbers = [random.uniform(-0.1, 0.1) for _ in range(count + 1)]
public.encrypt(numbers[0])  # what is made at the first use
before = time.process_time()
for number in numbers[1:]:
    public.encrypt(number)
print((time.process_time() - before) / count)
