"""Measures one Python peer at one key size. `run` starts it and talks to it.

Usage: worker.py PEER BITS. After setting itself up the worker writes one JSON line with
what is known once (version, ciphertext size). Then, for every line it reads, a JSON
object {"budget_s": seconds per measured call}, it measures each operation once and
answers with one JSON line. It lives through the whole run so that the key and the
tables are made once and its rounds can be interleaved with those of the others.
"""

import json
import os
import random
import sys
import time
from importlib.metadata import version

HERE = os.path.dirname(os.path.abspath(__file__))

# Every party encrypts non-negative 32-bit integers, because some peers pay a modular
# inversion for each negative value.
VALUE_BITS = 32
# A sample should be long against the clock's resolution and short against the time
# between two interruptions by other programs.
SAMPLE_S = 0.008
MIN_SAMPLES = 3
# Real ciphertexts kept for additions and decryptions, and repeated to fill a batch.
POOL = 16
MAX_BATCH = 256

DENSE_VALUES = 206_848


def main():
    answer = private_answer_channel()
    try:
        peer = PEERS[sys.argv[1]](int(sys.argv[2]))
        answer(peer.description())
        for line in sys.stdin:
            answer(peer.measure(json.loads(line)["budget_s"]))
    except Exception as error:  # the report shows the reason
        answer({"error": one_line(error)})
        raise SystemExit(1)


def private_answer_channel():
    """Keeps the real standard output for answers. Libraries may print to the replacement."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message):
        print(json.dumps(message), file=channel, flush=True)

    return answer


def one_line(error):
    """Returns the start of the message, because tenseal puts whole vectors into its errors."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


def test_primes(bits):
    with open(os.path.join(HERE, "test-primes.txt")) as lines:
        pairs = [line.split() for line in lines if not line.startswith("#")]
    return [int(prime, 16) for size, prime in pairs if int(size) == bits]


def random_values(count):
    return [random.getrandbits(VALUE_BITS) for _ in range(count)]


def repeat(items, count):
    return [items[i % len(items)] for i in range(count)]


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Variant:
    """One way to do an operation through a library's public interface.

    `prepare(batch)` returns a call that does `batch` operations; only the call is timed.
    """

    def __init__(self, prepare):
        call = prepare(4)
        call()  # the first call may still build tables
        per_operation = timed(call) / 4
        self.batch = max(1, min(MAX_BATCH, round(SAMPLE_S / per_operation)))
        self.call = prepare(self.batch)

    def best_us(self, budget_s):
        """Returns the shortest sample within the budget, because interruptions only lengthen a sample."""
        best, samples, start = float("inf"), 0, time.perf_counter()
        while samples < MIN_SAMPLES or time.perf_counter() - start < budget_s:
            best = min(best, timed(self.call))
            samples += 1
        return best / self.batch * 1e6


class Peer:
    """A library that encrypts value by value."""

    packages = ()

    def __init__(self, bits):
        start = time.perf_counter()
        self.make_key(bits)
        self.keygen_s = time.perf_counter() - start
        self.values = random_values(POOL)
        self.make_ciphertexts()
        total = self.decrypted_sum_of_first_two()
        if int(total) != self.values[0] + self.values[1]:
            raise ValueError("the decrypted sum is wrong")
        self.variants = {
            operation: {name: Variant(prepare) for name, prepare in ways.items()}
            for operation, ways in self.operations().items()
        }

    def description(self):
        return {
            "version": ", ".join(f"{name} {version(name)}" for name in self.packages),
            "keygen_s": self.keygen_s,
            "ciphertext_bytes": self.ciphertext_bytes(),
        }

    def measure(self, budget_s):
        """Returns the fastest way of each operation, and its name."""
        result = {}
        for operation, ways in self.variants.items():
            times = {name: way.best_us(budget_s) for name, way in ways.items()}
            name = min(times, key=times.get)
            result[operation] = {"us": times[name], "way": name}
        return result


class Phe(Peer):
    packages = ("phe", "gmpy2")

    def make_key(self, bits):
        from phe import paillier

        p, q = test_primes(bits)
        self.public = paillier.PaillierPublicKey(p * q)
        self.private = paillier.PaillierPrivateKey(self.public, p, q)

    def make_ciphertexts(self):
        self.numbers = [self.public.encrypt(value) for value in self.values]
        self.raw = [number.ciphertext(be_secure=False) for number in self.numbers]

    def decrypted_sum_of_first_two(self):
        return self.private.decrypt(self.numbers[0] + self.numbers[1])

    def ciphertext_bytes(self):
        return (self.public.nsquare.bit_length() + 7) // 8

    def operations(self):
        public, private = self.public, self.private
        return {
            "encrypt": {
                "encrypt": self.each(public.encrypt, self.values),
                "raw_encrypt": self.each(public.raw_encrypt, self.values),
            },
            "add": {"EncryptedNumber": self.additions},
            "decrypt": {
                "decrypt": self.each(private.decrypt, self.numbers),
                "raw_decrypt": self.each(private.raw_decrypt, self.raw),
            },
        }

    @staticmethod
    def each(function, pool):
        def prepare(batch):
            items = repeat(pool, batch)
            return lambda: [function(item) for item in items]

        return prepare

    def additions(self, batch):
        left = repeat(self.numbers, batch)
        right = repeat(self.numbers[::-1], batch)
        return lambda: [a + b for a, b in zip(left, right)]


class Heu(Peer):
    packages = ("sf-heu",)
    schema = None

    def make_key(self, bits):
        from heu import numpy, phe

        self.kit = numpy.setup(getattr(phe.SchemaType, self.schema), bits)
        self.encoder = phe.BigintEncoder(self.kit.get_schema())
        self.encryptor = self.kit.encryptor()
        self.decryptor = self.kit.decryptor()
        self.evaluator = self.kit.evaluator()

    def make_ciphertexts(self):
        self.plain = [self.kit.plaintext(value) for value in self.values]
        self.scalars = [self.encryptor.encrypt(plain) for plain in self.plain]

    def encrypted_array(self, count):
        values = repeat(self.values, count)
        return self.encryptor.encrypt(self.kit.array(values, self.encoder))

    def decrypted_sum_of_first_two(self):
        left, right = self.encrypted_array(1), self.scalars[1]
        by_array = self.decryptor.decrypt(self.evaluator.add(left, left))
        if int(by_array.to_numpy(self.encoder)[0]) != 2 * self.values[0]:
            raise ValueError("the decrypted array sum is wrong")
        total = self.evaluator.phe.add(self.scalars[0], right)
        return self.decryptor.phe.decrypt_raw(total)

    def ciphertext_bytes(self):
        return len(self.scalars[0].serialize())

    def operations(self):
        encryptor, decryptor = self.encryptor.phe, self.decryptor.phe
        return {
            "encrypt": {
                "array": self.array_encryptions,
                "scalar": Phe.each(encryptor.encrypt, self.plain),
            },
            "add": {
                "array": self.array_additions,
                "scalar in place": self.additions_in_place,
            },
            "decrypt": {
                "array": self.array_decryptions,
                "scalar": Phe.each(decryptor.decrypt, self.scalars),
            },
        }

    def array_encryptions(self, batch):
        plain = self.kit.array(repeat(self.values, batch), self.encoder)
        return lambda: self.encryptor.encrypt(plain)

    def array_additions(self, batch):
        left, right = self.encrypted_array(batch), self.encrypted_array(batch)
        return lambda: self.evaluator.add(left, right)

    def additions_in_place(self, batch):
        total = self.encryptor.encrypt(self.plain[0])
        add, terms = self.evaluator.phe.add_inplace, repeat(self.scalars, batch)
        return lambda: [add(total, term) for term in terms]

    def array_decryptions(self, batch):
        array = self.encrypted_array(batch)
        return lambda: self.decryptor.decrypt(array)


class HeuZPaillier(Heu):
    schema = "ZPaillier"


class HeuOu(Heu):
    schema = "OU"


class PyPaillier(Peer):
    packages = ("pypaillier",)

    def make_key(self, bits):
        import paillier

        self.library = paillier
        self.public, self.private = paillier.generate_keypair(bits)

    def make_ciphertexts(self):
        blobs = self.library.encrypt_integers(self.public, self.values)
        self.blobs = [bytes(blob) for blob in blobs]

    def decrypted_sum_of_first_two(self):
        total = self.library.add_many(self.public, self.blobs[:2])
        return self.library.decrypt_many(self.private, [bytes(total)])[0]

    def ciphertext_bytes(self):
        return max(len(blob) for blob in self.blobs)

    def operations(self):
        return {
            "encrypt": {
                "encrypt_integers": self.integer_encryptions,
                "encrypt_many": self.float_encryptions,
            },
            "add": {"add_many": self.sums},
            "decrypt": {
                "decrypt": Phe.each(self.decrypt_one, self.blobs),
                "decrypt_many": self.decryptions,
            },
        }

    def integer_encryptions(self, batch):
        values = repeat(self.values, batch)
        return lambda: self.library.encrypt_integers(self.public, values)

    def float_encryptions(self, batch):
        values = [float(value) for value in repeat(self.values, batch)]
        return lambda: self.library.encrypt_many(self.public, values, scale_pow10=0)

    def sums(self, batch):
        blobs = repeat(self.blobs, batch + 1)  # one more term than additions
        return lambda: self.library.add_many(self.public, blobs)

    def decrypt_one(self, blob):
        return self.library.decrypt(self.private, blob)

    def decryptions(self, batch):
        blobs = repeat(self.blobs, batch)
        return lambda: self.library.decrypt_many(self.private, blobs)


class Fate(Peer):
    packages = ("fate_utils",)

    def make_key(self, bits):
        from fate_utils import paillier

        self.private, self.public, self.coder = paillier.keygen(bits)

    def make_ciphertexts(self):
        self.vector = self.public.encrypt_encoded(self.encoded(POOL), True)

    def encoded(self, count):
        import numpy

        values = numpy.array(repeat(self.values, count), dtype=numpy.int64)
        return self.coder.encode_i64_vec(values)

    def encrypted(self, count):
        return self.vector.slice_indexes([i % POOL for i in range(count)])

    def decrypted_sum_of_first_two(self):
        total = self.vector.slice_indexes([0]).add(
            self.public, self.vector.slice_indexes([1])
        )
        return self.coder.decode_i64_vec(self.private.decrypt_to_encoded(total))[0]

    def ciphertext_bytes(self):
        # Its serialised form writes big numbers as hexadecimal text.
        return round(len(self.vector.__getstate__()) / POOL)

    def operations(self):
        return {
            "encrypt": {"vector": self.encryptions},
            "add": {"add": self.additions, "iadd": self.additions_in_place},
            "decrypt": {"vector": self.decryptions},
        }

    def encryptions(self, batch):
        encoded = self.encoded(batch)
        return lambda: self.public.encrypt_encoded(encoded, True)

    def additions(self, batch):
        left, right = self.encrypted(batch), self.encrypted(batch)
        return lambda: left.add(self.public, right)

    def additions_in_place(self, batch):
        left, right = self.encrypted(batch), self.encrypted(batch)
        return lambda: left.iadd(self.public, right)

    def decryptions(self, batch):
        vector = self.encrypted(batch)
        return lambda: self.private.decrypt_to_encoded(vector)


class TenSeal:
    """Dense packing: a whole vector of values, many to a ciphertext."""

    # BFV works modulo this number, which allows 4,096 slots of just under 20 bits.
    BFV_MODULUS = 1_032_193
    SLOTS = 4096

    def __init__(self, _bits):
        import tenseal

        self.library = tenseal
        self.schemes = {
            "ckks-8192": self.ckks(tenseal.ENCRYPTION_TYPE.ASYMMETRIC),
            "ckks-8192-symmetric": self.ckks(tenseal.ENCRYPTION_TYPE.SYMMETRIC),
            "bfv-4096": self.bfv(),
        }
        for context, chunks, vector in self.schemes.values():
            self.check(context, chunks[0], vector)

    def ckks(self, encryption_type):
        library = self.library
        context = library.context(
            library.SCHEME_TYPE.CKKS,
            8192,
            coeff_mod_bit_sizes=[60, 40, 40],
            encryption_type=encryption_type,
            n_threads=1,
        )
        context.global_scale = 2**40
        values = [random.uniform(-1, 1) for _ in range(DENSE_VALUES)]
        # Ready-made plain tensors spare it the conversion from Python floats.
        chunks = [library.plain_tensor(chunk) for chunk in self.chunks(values)]
        return context, chunks, library.ckks_vector

    def bfv(self):
        library = self.library
        context = library.context(
            library.SCHEME_TYPE.BFV, 4096, plain_modulus=self.BFV_MODULUS, n_threads=1
        )
        values = [random.getrandbits(16) for _ in range(DENSE_VALUES)]
        return context, self.chunks(values), library.bfv_vector

    def chunks(self, values):
        return [
            values[start : start + self.SLOTS]
            for start in range(0, len(values), self.SLOTS)
        ]

    @staticmethod
    def check(context, chunk, vector):
        total = (vector(context, chunk) + vector(context, chunk)).decrypt()
        values = chunk if isinstance(chunk, list) else chunk.tolist()
        if any(abs(t - 2 * v) > 1e-3 for t, v in zip(total, values)):
            raise ValueError("the decrypted sum is wrong")

    def description(self):
        return {"version": f"tenseal {version('tenseal')}"}

    def measure(self, _budget_s):
        return {name: self.encrypt_all(*parts) for name, parts in self.schemes.items()}

    @staticmethod
    def encrypt_all(context, chunks, vector):
        start = time.process_time()
        ciphertexts = [vector(context, chunk) for chunk in chunks]
        cpu_s = time.process_time() - start
        return {
            "values": DENSE_VALUES,
            "ciphertexts": len(ciphertexts),
            "bytes": sum(len(ciphertext.serialize()) for ciphertext in ciphertexts),
            "cpu_s": cpu_s,
        }


PEERS = {
    "phe": Phe,
    "heu-zpaillier": HeuZPaillier,
    "heu-ou": HeuOu,
    "pypaillier": PyPaillier,
    "fate": Fate,
    "tenseal": TenSeal,
}

if __name__ == "__main__":
    main()
