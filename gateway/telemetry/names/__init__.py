"""Every name an operator can meet: metrics, spans, span attributes and log fields.

Dashboards, alerts and the reference page are checked against this package, so a name changes here or nowhere.
"""

from gateway.telemetry.names.agents import *
from gateway.telemetry.names.compaction import *
from gateway.telemetry.names.controls import *
from gateway.telemetry.names.logs import *
from gateway.telemetry.names.metrics import *
from gateway.telemetry.names.runs import *
from gateway.telemetry.names.spans import *
from gateway.telemetry.names.tools import *
from gateway.telemetry.names.usage import *
