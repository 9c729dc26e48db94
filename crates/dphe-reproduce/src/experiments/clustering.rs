//! Clustering: rounds of sparse centroids compared with mini-batches over all data.

use super::grid::{Grid, GridCell, GridSpec, Method};
use super::results::{Results, Show};
use super::settings::{CALTECH101, CALTECH256, boxed, notes};
use super::{Settings, Source};
use crate::methods::clusters::ClusterMethod;
use crate::{Claim, Findings, ValueUnit};

/// Makes the experiment for these data sets.
pub fn clustering(sources: Vec<Source>, settings: Settings) -> Grid {
    let mut cells = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        for method in ClusterMethod::ALL {
            let what = name(&source.name, method);
            let printed: &[f64] = match (method, source.name.as_str()) {
                (ClusterMethod::S10, CALTECH101) => &[0.733],
                (ClusterMethod::S10, CALTECH256) => &[0.630],
                (ClusterMethod::DualAveraging, CALTECH101) => &[0.753],
                (ClusterMethod::DualAveraging, CALTECH256) => &[0.614],
                _ => &[],
            };
            let privacy = if method.is_private() { "yes" } else { "no" };
            let method = Method::Clusters { method, share: 1.0 - source.centroid_sparsity };
            cells.push(GridCell { printed, privacy, ..GridCell::new(what, index, method, &settings) });
        }
    }
    let own = [
        "The paper does not say which entropy normalises its scores. In 2017, the common library used the largest.",
        "A round passes over all samples, while mini-batches pass about six times over them in total. Compare rounds \
         with full passes too.",
        "Sums are made in the clear here, because sealing works as in the other experiments.",
    ];
    let title = "Clustering: adjusted mutual information with the classes";
    Grid::new(GridSpec {
        notes: notes(&sources, own),
        cells,
        main: "arithmetic",
        summarize: Box::new(findings),
        ..GridSpec::new("clustering", title, settings, boxed(sources))
    })
}

fn name(source: &str, method: ClusterMethod) -> String {
    format!("{source}/{}", method.name())
}

fn findings(results: &Results<'_>) -> Findings {
    use ValueUnit::{Count, Percent, Plain, Text};
    let table = results.table(
        "Agreement of clusters with classes",
        &[
            ("dataset", "data", Text, Show::Source),
            ("method", "method", Text, Show::Label),
            ("mean", "AMI (mean entropy)", Plain, Show::Mean("arithmetic")),
            ("std", "±", Plain, Show::Deviation("arithmetic")),
            ("runs", "runs", Count, Show::Runs("arithmetic")),
            ("paper", "paper", Plain, Show::Printed(0)),
            ("max", "AMI (largest entropy)", Plain, Show::Mean("max")),
            ("max_std", "±", Plain, Show::Deviation("max")),
            ("held_out", "held out, mean entropy", Plain, Show::Mean("held-out arithmetic")),
            ("held_out_max", "held out, largest entropy", Plain, Show::Mean("held-out max")),
            ("sparsity", "zeros per message, %", Percent, Show::Mean("sparsity")),
            ("private", "samples stay with users", Text, Show::Privacy),
        ],
    );
    Findings { tables: vec![table], claims: claims(results), ..Findings::default() }
}

fn claims(results: &Results<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for source in results.spec.sources.iter().map(|source| source.name()) {
        for (key, how) in [("arithmetic", "mean"), ("max", "largest")] {
            for method in [ClusterMethod::PlainMean, ClusterMethod::Counted] {
                let mean = |method| results.mean(&name(source, method), key);
                let (Some(ours), Some(s10)) = (mean(method), mean(ClusterMethod::S10)) else { continue };
                let text = format!(
                    "{source}: {} is within 0.02 of S10 or above (normalised by the {how} entropy)",
                    method.name()
                );
                claims.push(Claim::new(text, ours >= s10 - 0.02, format!("{ours:.3}, S10 {s10:.3}")));
            }
        }
    }
    claims
}
