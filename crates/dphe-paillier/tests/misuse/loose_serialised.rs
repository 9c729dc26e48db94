use dphe_paillier::arith::lanes::Lanes;
use dphe_paillier::arith::modulus::Modulus;
use dphe_paillier::arith::units::{Loose, N, Number, Plain, Public};

pub fn serialise(n: &Modulus<Public>, loose: &Number<N, Plain, Loose, Lanes>) -> Vec<u64> {
    n.to_limbs(loose).to_vec()
}

fn main() {}
