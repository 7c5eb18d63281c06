"""The state of the specified cache, and the quantities that the rules ask for.

Nothing is counted ahead: how many pages are free, what is locked, which copies a later request
could need is worked out from the records below each time a rule asks.

    page    a number that is given out once and never again, so equal numbers mean equal contents
    hold    a set of pages that somebody uses. A page in no hold is unlocked
"""

from collections.abc import Collection, Iterable
from typing import Any

from hicache.core.actions import KvRemoved, KvStored, Outcome
from hicache.core.config import Config
from hicache.core.types import Tier, chain_digests, root_digest

from .kinds import FULL, Facts, Policies, kinds_of
from .records import BOTH, DEVICE, HOST, Hold, Node, Pin, Rank, Request, StorageTransfer, Transfer

Transfers = Collection[Transfer]


class Cache:
    """Everything that the specified cache remembers between two events."""

    def __init__(self, config: Config, policies: Policies) -> None:
        self.config = config
        self.writes, self.order, self.waits, declared = policies
        self.kinds = kinds_of(config, declared)
        self.windows = [at for at, kind in enumerate(self.kinds) if kind.per_page and at != FULL]
        self.stateful = [at for at, kind in enumerate(self.kinds) if not kind.per_page]
        self.interval = max(kind.interval for kind in self.kinds)
        self.requests: dict[int, Request] = {}
        self.running: list[Request] = []  # in the order of admission
        self.transfers: dict[int, Transfer] = {}  # in the order in which they began
        self.tick = 0
        self.last_page = self.last_transfer = 0
        self.out: list[Outcome] = []
        self.attached = config.storage
        self.storage: dict[int, StorageTransfer] = {}  # in the order in which they began
        self.to_store: list[Node] = []  # in the order in which they are stored
        self.believed: set[tuple[int, bytes]] = set()  # kind and digest of pages that are stored
        self.distrusted: list[bytes] = []  # digests, oldest first
        self.pins: dict[int, Pin] = {}
        self.periods: list[int] = []  # the tick at the end of each of the last periods
        self.made = 0  # nodes
        self.begin_tree()

    # -- the tree

    def begin_tree(self) -> None:
        """An empty tree. nodes: every node but the root. By tier and kind: having, the nodes with a
        copy, by its first page; cached, all pages of copies."""
        self.root = Node(0, None, "", [], len(self.kinds))
        self.nodes: dict[Node, None] = {}
        self.having: list[list[dict[int, Node]]] = [[{} for _ in self.kinds] for _ in BOTH]
        self.cached: list[list[set[int]]] = [[set() for _ in self.kinds] for _ in BOTH]

    def forget(self) -> None:
        """Ends circles of references: a replay frees nothing else."""
        for node in (self.root, *self.nodes):
            node.children = []

    def new_node(self, above: Node, namespace: str, rows: list[bytes]) -> Node:
        """A node without copies that is nobody's child yet."""
        self.made += 1
        node = Node(self.made, above, namespace, rows, len(self.kinds))
        self.nodes[node] = None
        return node

    def down_to(self, node: Node) -> list[Node]:
        """The nodes from the top down to this one."""
        path = []
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return path[::-1]

    def and_below(self, node: Node) -> list[Node]:
        """The node and all below it, parents first."""
        nodes = [node]
        for above in nodes:
            nodes += above.children
        return nodes

    # -- pages

    def put(self, node: Node, tier: int, kind: int, pages: list[int]) -> None:
        """The node has this copy now."""
        node.copies[tier][kind] = pages
        self.having[tier][kind][pages[0]] = node
        self.cached[tier][kind].update(pages)

    def capacity(self, tier: int, kind: int) -> int:
        return (self.config.host_pages if tier else self.config.device_pages)[kind]

    def in_use(self, tier: int, kind: int, ended: Transfers = ()) -> set[int]:
        """Pages that a request has to itself, and those that a transfer reads or writes. ended: see
        `available`."""
        numbers: set[Any] = set()
        for transfer in self.transfers.values():
            here, over = transfer.to == tier, transfer in ended
            if tier == DEVICE and not over:
                numbers |= transfer.on_loan.get(kind, set())
            if not over or (here and transfer.request is not None):  # a request uses what came
                numbers.update(item.target if here else item.source for item in transfer.of(kind))
        for request in self.running if tier == DEVICE else ():
            numbers.update(self.own(request, kind))
        numbers.discard(None)
        for other in self.storage.values() if tier == HOST else ():
            numbers.update(part.page for part in other.parts if part.kind == kind)
        return numbers

    def own(self, request: Request, kind: int) -> list[int | None]:
        """Device pages of a running request that no node has, None where it has none."""
        return request.tables[kind][request.shared if self.kinds[kind].per_page else 0 :]

    def used(self, tier: int, kind: int) -> set[int]:
        """Pages that are not free."""
        return self.cached[tier][kind] | self.in_use(tier, kind)

    def free(self, tier: int, kind: int) -> int:
        cached = self.cached[tier][kind]
        return self.capacity(tier, kind) - len(cached) - len(self.in_use(tier, kind) - cached)

    def available(
        self, tier: int, kind: int, hold: Collection[int] = (), ended: Transfers = ()
    ) -> int:
        """All pages but those that a node has and somebody holds, and those in use that no node
        has. Supposes that somebody took this hold, and that these transfers have ended."""
        return self.counts(tier, kind, hold, ended)[1]

    def counts(
        self, tier: int, kind: int, hold: Collection[int] = (), ended: Transfers = ()
    ) -> tuple[int, int]:
        """How many pages are free, and how many are available."""
        cached, in_use = self.cached[tier][kind], self.in_use(tier, kind, ended)
        free = self.capacity(tier, kind) - len(cached) - len(in_use - cached)
        return free, free + len(cached) - len(self.holds(ended).union(hold) & cached)

    def holds(self, ended: Transfers = (), storage: bool = True) -> Hold:
        """All pages in a hold of anything but these transfers, and with or without what transfers
        for storage hold."""
        owners: list[Request | Transfer | Pin | StorageTransfer]
        owners = [*self.running, *self.transfers.values(), *self.pins.values()]
        owners += self.storage.values() if storage else ()
        return Hold().union(*(owner.hold for owner in owners if owner not in ended))

    def held_nodes(self, hold: Hold, tier: int, kind: int) -> list[Node]:
        """The nodes whose copy is in a hold."""
        having = self.having[tier][kind]
        return [having[page] for page in having.keys() & hold]

    def new_pages(self, count: int) -> list[int]:
        """Pages that were free. That there are enough is for the rules to see to."""
        self.last_page += count
        return list(range(self.last_page - count + 1, self.last_page + 1))

    def rounded_up(self, tokens: int) -> int:
        """Pages for so many tokens."""
        return -(-tokens // self.config.page_size)

    # -- actions for storage

    def begin_storage(self, action: str) -> StorageTransfer:
        self.last_transfer += 1
        transfer = StorageTransfer(self.last_transfer, action)
        self.storage[transfer.number] = transfer
        return transfer

    def in_flight(self, *actions: str) -> list[StorageTransfer]:
        return [transfer for transfer in self.storage.values() if transfer.action in actions]

    # -- use

    def rank(self, node: Node, kind: int) -> Rank:
        """The values by which the eviction policy compares copies; the smallest goes first."""
        depth = node.start if kind != FULL else 0
        uses = node.last_use[kind], node.inserted, node.hits, node.priority
        return self.order.key(Facts(*uses, depth))

    def is_live(self, node: Node) -> bool:
        """Whether a request could reuse the prefix that ends with this node: each kind has what it
        requires, on either tier. Full attention is on one of them at every node."""
        for kind in (*self.stateful, *self.windows):
            above: Node | None = node
            while above and above.rows and node.end - above.end < self.kinds[kind].window:
                if not above.anywhere(kind):
                    return False
                above = above.parent
        return True

    def is_unreachable(self, node: Node, kind: int) -> bool:
        """Whether no live end at or below the node requires its copy of this kind."""
        nodes = [node]
        for below in nodes:
            if self.is_live(below):
                return False
            window = self.kinds[kind].window
            nodes += [child for child in below.children if child.end - node.end < window]
        return True

    def hopeful(self, nodes: Iterable[Node]) -> set[Node]:
        """Those of these nodes that have a live end at or below them."""
        return {node for node in nodes if not self.is_unreachable(node, FULL)}

    # -- outcomes

    def say(self, outcome: Outcome) -> None:
        self.out.append(outcome)

    def tell_routers(self, tier: Tier, node: Node, stored: bool) -> None:
        """KV events: the pages of the node are now on the tier, or left it."""
        if self.config.kv_events:
            self.say((KvStored if stored else KvRemoved)(tier, tuple(self.digests(node))))

    def digests(self, node: Node) -> list[bytes]:
        """Of each page of the node's run."""
        digest = root_digest(node.namespace)
        for above in self.down_to(node):
            if len(above.digests) != len(above.rows):
                above.digests = chain_digests(digest, b"".join(above.rows), len(above.rows[0]))
            digest = above.digests[-1]
        return node.digests

    def positions(self, node: Node, kind: int) -> range:
        """The depths of the pages that a copy of the node has. A state is at its last page."""
        return range(node.start if self.kinds[kind].per_page else node.end - 1, node.end)
