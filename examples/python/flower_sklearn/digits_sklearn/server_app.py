"""What the server does: federated averages that it computes from sums of sealed updates."""

from __future__ import annotations

from dphe.flower import SecureStrategy, Simulation
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_sklearn.task import load_held_out, make_model

app = ServerApp()


def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the accuracy on samples that no node has."""
    model = make_model(1)
    model.coef_, model.intercept_ = arrays.to_numpy_ndarrays()
    images, labels = load_held_out()
    return MetricRecord({"accuracy": float((model.predict(images) == labels).mean())})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    model = make_model(1)
    kit = str(context.run_config["kit"])
    simulated = Simulation(int(context.run_config["max-users"]), max_examples=512, clip=8.0)
    strategy = SecureStrategy(FedAvg(fraction_evaluate=0.0), kit or simulated)
    result = strategy.start(
        grid,
        ArrayRecord([model.coef_, model.intercept_]),
        int(context.run_config["num-server-rounds"]),
        train_config=ConfigRecord({"local-iterations": int(context.run_config["local-iterations"])}),
        evaluate_fn=evaluate,
    )
    accuracy = result.evaluate_metrics_serverapp[max(result.evaluate_metrics_serverapp)]["accuracy"]
    print(f"accuracy on samples that no node has: {100 * float(str(accuracy)):.1f} %")
