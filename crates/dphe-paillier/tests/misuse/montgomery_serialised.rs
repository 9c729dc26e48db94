use dphe_paillier::arith::lanes::Lanes;
use dphe_paillier::arith::modulus::Modulus;
use dphe_paillier::arith::units::{Canonical, Mont, N, Number, Public};

pub fn serialise(n: &Modulus<Public>, x: &Number<N, Mont, Canonical, Lanes>) -> Vec<u64> {
    n.to_limbs(x).to_vec()
}

fn main() {}
