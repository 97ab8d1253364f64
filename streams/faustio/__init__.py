"""What Faust needs to be safe. Each module closes one hole of faust-streaming 0.15.3 and says which.

app.py          SafeApp and its settings, raw topics and tables
lifecycle.py    start and stop apps at run time, several in one loop
recovery.py     table recovery and rebalance without skipped records
table.py        table writes that end when the broker has them
log.py          publishing that ends when the broker has it
keyed_runner.py one handler call a record, order per key, acks in offset order
batch_runner.py one handler call a group of records, acks in offset order
continuity.py   tripwire: no offset of an uncompacted topic is skipped
readiness.py    is an app recovered, and what does it own
tracing.py      trace context from record to record
"""
