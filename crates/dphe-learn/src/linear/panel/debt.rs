//! The cumulative L1 penalty of many steps, in three numbers.

/// The cumulative L1 penalty. Tsuruoka's rule stores, for every weight `w`, the penalty `q` that it has received.
/// Each step pays the rest of the total penalty `u`, but never beyond zero. Let `z = w - q` be the weight without
/// payments. Then the rule is `w = soft(z, u)`, and a gradient step changes `z` as it would change `w`. Only `z` must
/// be stored, which halves the memory and avoids branches.
///
/// L2 shrinks `w`, not `z`. While no class of the panel takes a gradient step, `k` steps of both penalties turn `w`
/// into `keep soft(w, owed / keep)`, which is `keep soft(z, u + owed / keep)`. Such steps change two numbers and
/// leave the rows unchanged. When a class takes a gradient step, `z` loses `(1 - keep) soft(z, u)` and `u` grows by
/// `owed`. For non-zero weights this is exactly the rule. For weights that are zero, L2 discounts the penalty between
/// two gradient steps as if it had been paid, a difference below [`Debt::LONGEST`].
///
/// With anchors `a` the penalty applies to `w - a`, so `w = a + soft(z, u)`, and every step counts as a gradient
/// step.
#[derive(Clone, Copy)]
pub(super) struct Debt {
    /// The penalty that a weight should have paid so far, `u`.
    pub(super) due: f64,
    /// The fraction of a weight that L2 has left since the last gradient step.
    pub(super) keep: f64,
    /// The L1 penalty since then, discounted in the same way.
    pub(super) owed: f64,
}

impl Debt {
    pub(super) const NONE: Self = Self { due: 0.0, keep: 1.0, owed: 0.0 };

    /// The fraction of a weight that L2 may remove before the rows must be updated.
    const LONGEST: f64 = 1e-3;

    /// Records a step in which L2 leaves `keep` of a weight and L1 charges `owed`.
    pub(super) fn grow(&mut self, keep: f64, owed: f64) {
        self.keep *= keep;
        self.owed = self.owed * keep + owed;
    }

    /// Settles the recorded steps. Returns the fraction that L2 removes, the penalty before and the penalty after.
    pub(super) fn settle(&mut self) -> (f64, f64, f64) {
        let (decay, before) = (1.0 - self.keep, self.due);
        *self = Self { due: self.due + self.owed, keep: 1.0, owed: 0.0 };
        (decay, before, self.due)
    }

    /// Returns whether the rows must be updated.
    pub(super) fn is_long(&self) -> bool {
        self.keep < 1.0 - Self::LONGEST
    }
}
