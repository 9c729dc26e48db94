"""What a node does. Only the list of mods differs from an app without encryption."""

from __future__ import annotations

from dphe.flower import dphe_mod
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_torch.task import Network, load_part, train

app = ClientApp(mods=[dphe_mod])


@app.train()
def train_part(message: Message, context: Context) -> Message:
    """Learn from the samples of this node."""
    # Sums are bound to this configuration, and not to that of the run.
    config = message.content.config_records["config"]
    network = Network()
    network.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    partition, partitions = context.node_config["partition-id"], context.node_config["num-partitions"]
    images, labels = load_part(int(partition), int(partitions))
    loss = train(network, images, labels, int(str(config["local-epochs"])))
    content = RecordDict(
        {
            "arrays": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"num-examples": len(labels), "loss": loss}),
        }
    )
    return Message(content, reply_to=message)
