"""What a client's URI needs to notice faults soon."""

QUICK = "&heartbeatFrequencyMS=500&connectTimeoutMS=1000"
