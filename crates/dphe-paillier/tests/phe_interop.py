"""The Python half of phe_interop.rs: python-paillier does the same with the same key.

Reads hexadecimal integers from standard input: p, q, a count k, then k pairs of a signed value and our ciphertext
of it, and our sum of all ciphertexts. Checks that phe decrypts them. Prints phe's own ciphertexts of the same values,
and phe's sum of our first ciphertext and its own second one.
"""

import sys

from phe import paillier


def main() -> None:
    lines = iter(sys.stdin.read().split())
    integer = lambda: int(next(lines), 16)
    p, q, count = integer(), integer(), integer()
    public = paillier.PaillierPublicKey(p * q)
    private = paillier.PaillierPrivateKey(public, p, q)
    values, ours = [], []
    for _ in range(count):
        values.append(integer())
        ours.append(paillier.EncryptedNumber(public, integer()))
    total = paillier.EncryptedNumber(public, integer())

    for value, encrypted in zip(values, ours):
        found = private.decrypt(encrypted)
        assert found == value, f"phe read {found}, not {value}"
    # A sum of values at the ends of the range wraps around n.
    found = private.raw_decrypt(total.ciphertext(be_secure=False))
    assert found == sum(values) % public.n, "phe read another sum"

    theirs = [public.encrypt(value) for value in values]
    for encrypted in theirs:
        print(f"{encrypted.ciphertext():x}")
    print(f"{(ours[0] + theirs[1]).ciphertext():x}")


main()
