"""What a node does. Only the list of mods differs from an app without encryption."""

from __future__ import annotations

from dphe.flower import dphe_mod
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_sklearn.task import load_part, make_model, train

app = ClientApp(mods=[dphe_mod])


@app.train()
def train_part(message: Message, context: Context) -> Message:
    """Learn from the samples of this node."""
    # Sums are bound to this configuration, and not to that of the run.
    config = message.content.config_records["config"]
    model = make_model(int(str(config["local-iterations"])))
    model.coef_, model.intercept_ = message.content.array_records["arrays"].to_numpy_ndarrays()
    partition, partitions = context.node_config["partition-id"], context.node_config["num-partitions"]
    images, labels = load_part(int(partition), int(partitions))
    train(model, images, labels)
    content = RecordDict(
        {
            "arrays": ArrayRecord([model.coef_, model.intercept_]),
            "metrics": MetricRecord({"num-examples": len(labels)}),
        }
    )
    return Message(content, reply_to=message)
