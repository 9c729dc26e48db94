"""Turns the measurements into the Markdown report, including the floors."""

from typing import NamedTuple

OPERATIONS = ("encrypt", "add", "decrypt")

# The noise that hides the value in each scheme. The report says where speed comes from less noise.
NOISE = {
    "dphe secure": "fixed base, exponent of half the modulus (DJN)",
    "dphe fast": "fixed base, short exponent of twice the security level",
    "dphe portable": "as dphe secure, portable back end",
    "phe": "textbook r^n, full length",
    "heu-zpaillier": "fixed base, exponent of half the modulus (DJN)",
    "heu-ou": "**weaker**: {ou_bits}-bit random exponents [1]",
    "pypaillier": "fixed base, exponent of half the modulus (DJN)",
    "fate": "textbook r^n, full length",
    "fast-paillier": "textbook r^n, full length",
}
OU_EXPONENT_BITS = {2048: 110, 3072: 128}

LABELS = {
    "dphe portable": "dphe secure, portable",
    "phe": "phe + gmpy2",
    "heu-zpaillier": "sf-heu ZPaillier",
    "heu-ou": "sf-heu OU",
    "fate": "fate_utils Paillier",
    "fast-paillier": "fast-paillier (num-bigint)",
}
OURS = ("dphe secure", "dphe fast", "dphe portable")

PACKED_LABELS = {
    "packed": "dphe fast, 2048 bits, 32-bit slots",
    "ckks-8192": "tenseal CKKS-8192, public key",
    "ckks-8192-symmetric": "tenseal CKKS-8192, symmetric [2]",
    "bfv-4096": "tenseal BFV-4096, public key [3]",
}

RATIOS = """\
Ratios are the peer's time over ours: above 1, dphe is faster. The secure mode has noise like
that of the DJN peers; the fast mode adds the assumption that short exponents look random, so
its ratios to all but OU compare unequal noise, in our favour."""

NOTES = """\
[1] sf-heu OU (Okamoto-Uchiyama) takes random exponents of 80, 110 and 128 bits for keys of
1024, 2048 and 3072 bits. A generic search for an exponent of b bits costs about 2^(b/2) steps,
so its noise is far weaker than that of either of our modes; read its times with that in mind.
In addition, anybody who sees one decryption of a value larger than the secret prime learns the key.

[2] Everyone who encrypts holds the secret key, and so can read everyone else's values.

[3] Its slots hold just under 20 bits, sums included; ours hold 32."""

BOTH = (2048, 3072)


class Floor(NamedTuple):
    """The smallest ratio of a peer's time to ours that dphe promises."""

    text: str
    need: float
    peer: str
    ours: str
    operation: str
    sizes: tuple = BOTH
    strict: bool = False  # more than the need, not just the need


FLOORS = (
    Floor("secure encryption, phe", 100, "phe", "dphe secure", "encrypt", (2048,)),
    Floor("secure encryption, phe", 75, "phe", "dphe secure", "encrypt", (3072,)),
    Floor("secure encryption, ZPaillier", 8, "heu-zpaillier", "dphe secure", "encrypt"),
    Floor("secure encryption, pypaillier", 8, "pypaillier", "dphe secure", "encrypt"),
    Floor("fast encryption, phe", 400, "phe", "dphe fast", "encrypt"),
    Floor("fast encryption, OU", 1, "heu-ou", "dphe fast", "encrypt", strict=True),
    Floor("addition, phe", 15, "phe", "dphe secure", "add"),
    Floor("addition, ZPaillier", 10, "heu-zpaillier", "dphe secure", "add"),
    Floor("decryption, phe", 10, "phe", "dphe secure", "decrypt"),
    Floor("decryption, ZPaillier", 10, "heu-zpaillier", "dphe secure", "decrypt"),
)
# Compared with public-key CKKS, because users of dphe hold no secret key either.
PACKED_FLOORS = (
    Floor("packed, CPU time of CKKS-8192", 1, "ckks-8192", "packed", "cpu_s", strict=True),
    Floor("packed, bytes of CKKS-8192", 5, "ckks-8192", "packed", "bytes"),
)
PORTABLE_FLOOR = Floor("portable secure encryption, phe", 8, "phe", "dphe portable", "encrypt")


def markdown(data):
    context, results = data["context"], data["results"]
    found = {(result["name"], result["bits"]): result for result in results}
    parts = ["# dphe and its peers", heading(context, results)]
    for bits in context["bits"]:
        parts += [f"## {bits}-bit keys", *key_size(found, results, bits)]
    parts += ["## Dense packing", *packing(found)]
    parts += ["## Notes", NOTES]
    data["floors"] = floors(found, context)
    parts += ["## Floors", floor_table(data["floors"], context)]
    return "\n\n".join(parts)


def heading(context, results):
    backends = sorted(
        {result["best"]["backend"] for result in results if "backend" in result.get("best", {})}
    )
    versions = sorted({result["version"] for result in results if result.get("version")})
    spreads = [value for result in results for value in result.get("spread", {}).values()]
    lines = [
        f"Date: {context['date']}",
        f"CPU: {context['cpu']}, AVX512-IFMA: {'yes' if context['avx512ifma'] else 'no'}",
        f"Back ends of dphe: {', '.join(backends) or 'not measured'}",
        f"Peers: {'; '.join(versions) or 'none'}",
        f"Best of {context['rounds']} interleaved rounds of short samples, "
        + ("one core" if context["bound_to_one_core"] else "**not bound to one core**"),
    ]
    if spreads:
        lines.append(f"Noise of the machine: median round over best, at worst {max(spreads):.2f}")
    if context["quick"]:
        lines.append("**Quick run: a smoke test, not figures to quote.**")
    if context["program_given"]:
        lines.append("**The dphe program was given through DPHE_BIN, not built here.**")
    return "\n".join(f"- {line}" for line in lines)


def key_size(found, results, bits):
    names = list(OURS) + [
        result["name"]
        for result in results
        if result["bits"] == bits and not result["name"].startswith("dphe")
    ]
    rows = [operation_row(found, name, bits) for name in names]
    head = ["Party", "Noise", "Encrypt µs", "Add µs", "Decrypt µs", "Bytes per value"]
    head += ["Encrypt / secure", "Encrypt / fast", "Add / ours", "Decrypt / ours"]
    yield table(head, rows)
    yield RATIOS
    yield from our_other_figures(found, bits)


def operation_row(found, name, bits):
    result = found.get((name, bits))
    label = LABELS.get(name, name)
    noise = NOISE[name].format(ou_bits=OU_EXPONENT_BITS.get(bits))
    if not result or "best" not in result:
        return [label, reason_of(result)] + [""] * 8
    best = result["best"]
    row = [label, noise] + [number(best[operation]["us"]) for operation in OPERATIONS]
    size = best.get("ciphertext_bytes", result.get("ciphertext_bytes"))
    row.append(str(size) + (" [hex text]" if name == "fate" else ""))
    if name in OURS:
        return row + [""] * 4
    versus = (
        ("dphe secure", "encrypt"),
        ("dphe fast", "encrypt"),
        ("dphe secure", "add"),
        ("dphe secure", "decrypt"),
    )
    return row + [
        times(ratio(found, name, ours, operation, bits)) for ours, operation in versus
    ]


def our_other_figures(found, bits):
    """Operations that only dphe offers: noise made in advance, products, packing before decryption."""
    rows = []
    for name in OURS:
        best = found.get((name, bits), {}).get("best")
        if best:
            others = [number(best[key]["us"]) for key in ("encrypt_pooled", "mul", "pack")]
            keygen = f"{best['keygen_s']:.2f}"
            rows.append([LABELS.get(name, name), best["backend"], keygen, *others])
    if rows:
        head = ["dphe alone", "Back end", "Key s", "Encrypt, noise in advance µs"]
        yield table([*head, "Multiply µs", "Pack µs"], rows)


def packing(found):
    ours = packed(found, "packed")
    rows = []
    for name, label in PACKED_LABELS.items():
        result = packed(found, name)
        if not result:
            holder = ("dphe packed", 2048) if name == "packed" else ("tenseal", 0)
            rows.append([label, reason_of(found.get(holder))] + [""] * 6)
            continue
        row = [label, str(result["ciphertexts"]), f"{result['cpu_s']:.3f}"]
        row.append(number(result["cpu_s"] / result["values"] * 1e6))
        row += [f"{result['bytes']:,}", f"{result['bytes'] / result['values']:.1f}"]
        if ours and name != "packed":
            row += [times(result[key] / ours[key]) for key in ("cpu_s", "bytes")]
        rows.append(row + [""] * (8 - len(row)))
    head = ["Party", "Ciphertexts", "CPU s", "CPU µs per value", "Bytes", "Bytes per value"]
    yield "206,848 values, encoded and encrypted; bytes as serialised."
    yield table([*head, "CPU / ours", "Bytes / ours"], rows)


def packed(found, name):
    holder = ("dphe packed", 2048) if name == "packed" else ("tenseal", 0)
    return found.get(holder, {}).get("best", {}).get(name)


def floors(found, context):
    """Returns each floor with the measured ratio and its result, in the order of the report."""
    applies = context["avx512ifma"]
    lines = []
    for floor in FLOORS:
        lines += floor_lines(found, context, floor, applies)
    for floor in PACKED_FLOORS:
        lines.append(floor_line(floor, floor.text, packed_ratio(found, floor), applies))
    lines += floor_lines(found, context, PORTABLE_FLOOR, applies=True)
    return lines


def floor_lines(found, context, floor, applies):
    for bits in floor.sizes:
        if bits in context["bits"]:
            measured = ratio(found, floor.peer, floor.ours, floor.operation, bits)
            yield floor_line(floor, f"{floor.text}, {bits} bits", measured, applies)


def floor_line(floor, text, measured, applies):
    if measured is None:
        result = "not measured"
    elif not applies:
        result = "not applicable: no AVX512-IFMA"
    else:
        reached = measured > floor.need if floor.strict else measured >= floor.need
        result = "pass" if reached else "miss"
    needed = f"{'>' if floor.strict else '>='} {floor.need}"
    return {"floor": text, "needed": needed, "measured": measured, "result": result}


def packed_ratio(found, floor):
    theirs, mine = packed(found, floor.peer), packed(found, floor.ours)
    return theirs[floor.operation] / mine[floor.operation] if theirs and mine else None


def floor_table(lines, context):
    rows = [
        [line["floor"], line["needed"], times(line["measured"]), line["result"]] for line in lines
    ]
    text = table(["Floor: peer over ours", "Needed", "Measured", "Result"], rows)
    if not context["avx512ifma"]:
        text += "\n\nThe floors are set for a CPU with AVX512-IFMA; the portable one holds on any."
    return text


def ratio(found, peer, ours, operation, bits):
    theirs = found.get((peer, bits), {}).get("best")
    mine = found.get((ours, bits), {}).get("best")
    if not theirs or not mine:
        return None
    return theirs[operation]["us"] / mine[operation]["us"]


def reason_of(result):
    return f"not available: {result['reason']}" if result else "not measured"


def number(value):
    """Formats with three or four digits. More would suggest a precision that the machine does not have."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(value):
    return "" if value is None else f"{number(value)}×"


def table(head, rows):
    cells = [head, *rows]
    clean = [[str(cell).replace("|", "/") for cell in row] for row in cells]
    lines = ["| " + " | ".join(row) + " |" for row in clean]
    lines.insert(1, "|" + " --- |" * len(head))
    return "\n".join(lines)
