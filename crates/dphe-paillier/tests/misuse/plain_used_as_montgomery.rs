use dphe_paillier::arith::lanes::Lanes;
use dphe_paillier::arith::modulus::{Modulus, Scratch};
use dphe_paillier::arith::units::{Group, Loose, Mont, N2, Plain, Public};

pub fn multiply(
    n: &Modulus<Public>,
    z: &mut Group<N2, Mont, Loose, Lanes>,
    x: &Group<N2, Mont, Loose, Lanes>,
    plain: &Group<N2, Plain, Loose, Lanes>,
    scratch: &mut Scratch,
) {
    n.mul(z, x, plain, scratch);
}

fn main() {}
