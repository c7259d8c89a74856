"""Every class of consumer groups: a history that has it, and the nearest one that has not."""

from tests.verify.writing import KEY, commit, op, poll, send, told

ALL = {"final_read": False}
ONE, TWO = ("one", 1), ("two", 2)
IN_ONE, IN_TWO = {"member": ["g", *ONE]}, {"member": ["g", *TWO]}
A, B, C = "k#1", "k#2", "k#3"


def three(first=(1, 2), second=(3, 4), third=(5, 6)):
    return [send(0, first, A, 0), send(0, second, B, 1), send(0, third, C, 2)]


GROUP_CASES = {
    "double-owner": (
        ALL,
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(1, (3, 4), "revoked", [KEY], ONE),
            told(2, (5, 6), "assigned", [KEY], ("two", 1)),
            commit(2, (7, 8), 0, ("two", 1)),
        ],
        ["double-owner"],
        (None, [1, 2]),
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(1, (3, 4), "revoked", [KEY], ONE),
            told(2, (5, 6), "assigned", [KEY], TWO),
            commit(2, (7, 8), 0, TWO),
        ],
    ),
    "owner-overlap": (
        ALL,
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(2, (3, 4), "assigned", [KEY], TWO),
            told(1, (5, 6), "lost", [KEY], ONE),
            commit(2, (7, 8), 0, TWO),
        ],
        ["owner-overlap"],
        (None, [1, 2]),
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(1, (2, 3), "lost", [KEY], ONE),
            told(2, (3, 4), "assigned", [KEY], TWO),
            commit(2, (7, 8), 0, TWO),
        ],
    ),
    "fenced-commit": (
        ALL,
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(2, (3, 4), "assigned", ["t/1"], TWO),
            commit(1, (5, 6), 0, ONE),
        ],
        ["fenced-commit"],
        (None, [2, 1]),
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(2, (5, 6), "assigned", ["t/1"], TWO),
            commit(1, (5, 6), 0, ONE),
        ],
    ),
    "commit-after-revoke": (
        ALL,
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(1, (3, 4), "revoked", [KEY], ONE),
            commit(1, (5, 6), 0, ONE),
        ],
        ["commit-after-revoke"],
        (0, [1, 1]),
        [
            told(1, (1, 2), "assigned", [KEY], ONE),
            told(1, (3, 5), "revoked", [KEY], ONE),
            commit(2, (4, 6), 0, ONE),
        ],
    ),
    "commit-regression": (
        ALL,
        [commit(1, (1, 2), 5, ONE), commit(2, (3, 4), 4, TWO)],
        ["commit-regression"],
        (4, [1, 2]),
        [
            commit(1, (1, 2), 5, ONE),
            op(3, "offset_commit", 2, ["g", {KEY: 4}], key=None),
            commit(2, (3, 4), 4, TWO),
        ],
    ),
    "group-rewind": (
        ALL,
        [
            *three(),
            told(1, (7, 8), "assigned", [KEY], ONE),
            poll(2, (9, 10), (0, A), (1, B), **IN_ONE),
            commit(2, (11, 12), 2, ONE),
            told(1, (13, 14), "revoked", [KEY], ONE),
            told(3, (15, 16), "assigned", [KEY], TWO),
            poll(4, (17, 18), (1, B), (2, C), **IN_TWO),
        ],
        ["group-rewind"],
        (1, [2, 4]),
        [
            *three(),
            told(1, (7, 8), "assigned", [KEY], ONE),
            poll(2, (9, 10), (0, A), (1, B), **IN_ONE),
            commit(2, (11, 12), 1, ONE),
            told(1, (13, 14), "revoked", [KEY], ONE),
            told(3, (15, 16), "assigned", [KEY], TWO),
            poll(4, (17, 18), (1, B), (2, C), **IN_TWO),
        ],
    ),
    "group-skip": (
        ALL,
        [
            *three(),
            poll(1, (7, 8), (0, A), **IN_ONE),
            poll(2, (9, 10), (2, C), **IN_TWO),
            poll(3, (9, 10), (1, B)),
            commit(2, (11, 12), 3, TWO),
        ],
        ["group-skip"],
        (1, [0, 2]),
        [
            *three(),
            poll(1, (7, 8), (0, A), **IN_ONE),
            poll(2, (9, 10), (1, B), **IN_TWO),
            poll(3, (9, 10), (2, C)),
            commit(2, (11, 12), 2, TWO),
        ],
    ),
}
