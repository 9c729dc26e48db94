"""What the server does: federated averages of a tenth of the network per round, from sums of sealed updates."""

from __future__ import annotations

from dphe.flower import SecureStrategy, Simulation
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_torch.task import Network, accuracy, load_held_out

app = ServerApp()


def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the accuracy on samples that no node has."""
    network = Network()
    network.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(network, *load_held_out())})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    kit, share = str(context.run_config["kit"]), float(context.run_config["share"])
    simulated = Simulation(
        int(context.run_config["max-users"]), max_examples=512, metrics=("loss",), share=share
    )
    strategy = SecureStrategy(FedAvg(fraction_evaluate=0.0), kit or simulated)
    result = strategy.start(
        grid,
        ArrayRecord(Network().state_dict()),
        int(context.run_config["num-server-rounds"]),
        train_config=ConfigRecord({"local-epochs": int(context.run_config["local-epochs"])}),
        evaluate_fn=evaluate,
    )
    last = result.evaluate_metrics_serverapp[max(result.evaluate_metrics_serverapp)]["accuracy"]
    print(f"accuracy on samples that no node has: {100 * float(str(last)):.1f} %")
