"""Dating silver thimbles from few labelled pieces: one ridge penalty for each feature, tuned by
implicit differentiation.

    inner   w*(lam) = argmin_w  L_train(w) + 1/2 sum_j exp(lam_j) w_j^2
    outer   min_lam L_val(w*(lam))

    d L_val / d lam = - [d^2 L_inner / d lam d w] . H^{-1} . dL_val/dw

The inverse Hessian is never formed: conjugate gradients with Hessian-vector products (double
backward).  The inner problem is warm-started from the previous outer step and is convex, so CG
may be used.  The test pieces are looked at only before the first and after the last outer step.
"""
import argparse

import torch
import torch.nn.functional as F

MARKS, TRUE_MARKS = 40, 7


def collection(n, weights, gen):
    x = torch.randn(n, MARKS, generator=gen)
    logit = x @ weights
    y = (torch.rand(n, generator=gen) < torch.sigmoid(logit)).float()
    return x, y


def val_loss(w, b, x, y):
    return F.binary_cross_entropy_with_logits(x @ w + b, y)


def inner_objective(w, b, lam, x, y):
    penalty = 0.5 * (lam.exp() * w**2).sum() + 0.5e-3 * b.pow(2).sum()
    return F.binary_cross_entropy_with_logits(x @ w + b, y) + penalty


def solve_inner(w, b, lam, x, y, steps=40, tolerance=1e-5):
    """Warm start; L-BFGS.  lam is a constant here: it gets its gradient elsewhere."""
    fixed = lam.detach()
    opt = torch.optim.LBFGS(
        [w, b],
        lr=1.0,
        max_iter=steps,
        tolerance_grad=tolerance,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        opt.zero_grad()
        loss = inner_objective(w, b, fixed, x, y)
        loss.backward()
        return loss

    opt.step(closure)
    closure()  # gradients at the solution
    return max(w.grad.abs().max().item(), b.grad.abs().max().item())


def conjugate_gradient(matvec, rhs, iterations, tolerance=1e-8):
    v = torch.zeros_like(rhs)
    r, p = rhs.clone(), rhs.clone()
    rr = r @ r
    for _ in range(iterations):
        if rr < tolerance**2:
            break
        hp = matvec(p)
        alpha = rr / (p @ hp)
        v, r = v + alpha * p, r - alpha * hp
        rr_new = r @ r
        p, rr = r + (rr_new / rr) * p, rr_new
    return v


def hypergradient(w, b, lam, train, val, cg_iterations):
    leaves = (w.detach().requires_grad_(), b.detach().requires_grad_())
    g_val = torch.autograd.grad(val_loss(*leaves, *val), leaves)
    rhs = torch.cat([g.reshape(-1) for g in g_val])

    inner = inner_objective(*leaves, lam, *train)
    g_inner = torch.autograd.grad(inner, leaves, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in g_inner])

    def hvp(v):
        out = torch.autograd.grad(flat, leaves, grad_outputs=v, retain_graph=True)
        return torch.cat([o.reshape(-1) for o in out])

    v = conjugate_gradient(hvp, rhs, cg_iterations)
    residual = (hvp(v) - rhs).norm() / rhs.norm()
    (cross,) = torch.autograd.grad(flat, lam, grad_outputs=v)
    return -cross, residual.item()  # L_val has no direct dependence on lam


def check_against_differences(w, b, lam, train, val, cg_iterations):
    """One coordinate by finite differences with the inner problem solved anew (float64)."""
    grad, _ = hypergradient(w, b, lam, train, val, cg_iterations)
    j, eps, values = int(grad.abs().argmax()), 1e-2, []
    for sign in (+1, -1):
        moved = lam.detach().clone()
        moved[j] += sign * eps
        w2, b2 = (
            w.detach().clone().requires_grad_(),
            b.detach().clone().requires_grad_(),
        )
        solve_inner(w2, b2, moved, *train, steps=200, tolerance=1e-10)
        values.append(val_loss(w2.detach(), b2.detach(), *val).item())
    numeric = (values[0] - values[1]) / (2 * eps)
    print(f"hypergradient check: implicit {grad[j].item():+.6f} numeric {numeric:+.6f}")
    assert abs(numeric - grad[j].item()) < 0.02 * abs(numeric) + 1e-6


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60, help="outer steps")
    ap.add_argument("--cg", type=int, default=50)
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)  # CG and the check want the digits
    gen = torch.Generator().manual_seed(21)
    truth = torch.zeros(MARKS)
    truth[:TRUE_MARKS] = torch.tensor([2.0, -1.8, 1.5, 1.6, -2.2, 1.4, -1.7])
    train, val, test = (collection(n, truth, gen) for n in (120, 200, 1500))

    w = torch.zeros(MARKS, requires_grad=True)
    b = torch.zeros(1, requires_grad=True)
    lam = torch.full((MARKS,), -5.0, requires_grad=True)
    outer = torch.optim.Adam([lam], lr=0.15, betas=(0.7, 0.99))

    history, test_before = [], None
    for step in range(args.steps):
        stationarity = solve_inner(w, b, lam, *train)
        assert (
            stationarity < 1e-3
        ), "the implicit formula holds only at the inner optimum"
        with torch.no_grad():
            history.append(val_loss(w, b, *val).item())
            if step == 0:
                test_before = val_loss(w, b, *test).item()
        if step == 5:
            check_against_differences(w, b, lam, train, val, args.cg)
        outer.zero_grad()
        lam.grad, residual = hypergradient(w, b, lam, train, val, args.cg)
        assert residual < 1e-2
        outer.step()
        if step % 10 == 0:
            print(
                f"outer {step:3d} val {history[-1]:.4f} |g| {lam.grad.norm():.4f} "
                f"cg residual {residual:.1e} inner |grad| {stationarity:.1e}"
            )

    solve_inner(w, b, lam, *train)
    with torch.no_grad():
        final_val, final_test = (
            val_loss(w, b, *val).item(),
            val_loss(w, b, *test).item(),
        )
    real, idle = lam[:TRUE_MARKS].mean().item(), lam[TRUE_MARKS:].mean().item()
    print(
        f"val {history[0]:.4f} -> {final_val:.4f}   test {test_before:.4f} -> {final_test:.4f}"
    )
    print(f"mean log penalty: true marks {real:.2f}, idle marks {idle:.2f}")
    assert final_val < history[0]
    if args.steps >= 40:
        assert final_test < 0.9 * test_before
        assert idle > real + 0.5, "idle marks must be penalised more"


if __name__ == "__main__":
    main()
