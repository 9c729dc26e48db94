//! L1 over many steps, in three numbers.

/// The cumulative L1 penalty. Tsuruoka's rule keeps, for every weight `w`, the penalty `q` it really received; each
/// step pays the rest of the debt `u` as far as zero allows. Put `z = w - q`, the weight as if it had never paid:
/// then the rule says `w = soft(z, u)`, and a step changes `z` as it would change `w`. So `z` is all there is to
/// keep: half the memory, and no branches.
///
/// L2 shrinks `w`, not `z`. As long as no class of the panel moves, `k` steps of both turn `w` into
/// `keep soft(w, owed / keep)`, which is `keep soft(z, u + owed / keep)`: such steps are a matter of two numbers and
/// leave the rows alone. When a class moves, `z` loses `(1 - keep) soft(z, u)` and `u` grows by `owed`. This is the
/// rule itself for weights that are not zero; for those that are, the debt of the steps between two moves is
/// discounted by L2 as if it had been paid, a difference below [`Debt::LONGEST`].
///
/// With anchors `a` the penalty is on `w - a`, so `w = a + soft(z, u)`; then every step counts as a move.
#[derive(Clone, Copy)]
pub(super) struct Debt {
    /// What a weight should have paid so far, `u`.
    pub(super) due: f64,
    /// What L2 has left of a weight since the last move.
    pub(super) keep: f64,
    /// What L1 has asked for since, so discounted.
    pub(super) owed: f64,
}

impl Debt {
    pub(super) const NONE: Self = Self { due: 0.0, keep: 1.0, owed: 0.0 };

    /// The part of a weight that L2 may take before the rows are brought up to date, moving or not.
    const LONGEST: f64 = 1e-3;

    /// Takes in a step that leaves `keep` of a weight and asks for `owed`.
    pub(super) fn grow(&mut self, keep: f64, owed: f64) {
        self.keep *= keep;
        self.owed = self.owed * keep + owed;
    }

    /// Brings up to date: the share that L2 takes, the debt before and the debt after.
    pub(super) fn settle(&mut self) -> (f64, f64, f64) {
        let (decay, before) = (1.0 - self.keep, self.due);
        *self = Self { due: self.due + self.owed, keep: 1.0, owed: 0.0 };
        (decay, before, self.due)
    }

    /// Whether so much has come together that the rows should be brought up to date.
    pub(super) fn is_long(&self) -> bool {
        self.keep < 1.0 - Self::LONGEST
    }
}
