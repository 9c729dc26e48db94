use dphe_paillier::arith::lanes::Lanes;
use dphe_paillier::arith::modulus::{Modulus, Scratch};
use dphe_paillier::arith::units::{Group, Loose, Mont, N2, P2, Public};

pub fn multiply(
    n: &Modulus<Public>,
    z: &mut Group<N2, Mont, Loose, Lanes>,
    x: &Group<N2, Mont, Loose, Lanes>,
    modulo_p_squared: &Group<P2, Mont, Loose, Lanes>,
    scratch: &mut Scratch,
) {
    n.mul(z, x, modulo_p_squared, scratch);
}

fn main() {}
