from .cache import PrefixCache as PrefixCache
from .errors import ClosedError as ClosedError
from .errors import NotInstalledError as NotInstalledError
from .errors import UnsupportedArgumentError as UnsupportedArgumentError
from .errors import UnsupportedModelError as UnsupportedModelError
from .stats import Stats as Stats
