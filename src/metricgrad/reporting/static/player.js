/* Figure 2 to play with: one slider steps through the rounds, the other moves alpha. */

all("[data-player]").forEach((player) => {
  const frames = JSON.parse(player.dataset.player), [round, alpha] = ["round", "alpha"].map((name) => player.querySelector(`[name=${name}]`));
  const says = player.querySelector("output"), [cut, learned, here, yours] = [".cut", ".learned path", ".here", ".yours"].map((name) => player.querySelector(name));
  const place = ([a, b, c, d], x, y) => [a + b * x, c + d * y].map((number) => number.toFixed(1));
  const shift = (mark, by) => mark.setAttribute("transform", `translate(${by.toFixed(1)} 0)`);
  const near = (values, x) => {
    const at = frames.alphas.findIndex((other) => other >= x), last = at < 0 ? values.length - 1 : Math.max(at, 1);
    const share = (x - frames.alphas[last - 1]) / (frames.alphas[last] - frames.alphas[last - 1]);
    return values[last - 1] + share * (values[last] - values[last - 1]);
  };
  const move = () => {
    const x = Number(alpha.value), curve = frames.surrogate[round.value];
    shift(cut, frames.data[1] * (1 / x - 1 / frames.alpha[0]));
    shift(yours, frames.losses[1] * (x - frames.alpha[0]));
    says.textContent = `Round ${frames.rounds[round.value]}, alpha ${x.toFixed(2)}: rows above ${(1 / x).toFixed(2)} are called positive; error rate ${near(frames.true, x).toFixed(3)}, surrogate ${near(curve, x).toFixed(3)}.`;
  };
  const step = () => {
    const curve = frames.surrogate[round.value];
    learned.setAttribute("d", `M${curve.map((loss, i) => place(frames.losses, frames.alphas[i], loss).join(" ")).join("L")}`);
    shift(here, frames.losses[1] * (frames.alpha[round.value] - frames.alpha[0]));
    alpha.value = frames.alpha[round.value];
    move();
  };
  let running;
  const stop = () => { clearInterval(running); running = undefined; player.querySelector("[data-play]").textContent = "Play"; };
  const go = (by) => { round.value = Number(round.value) + by; step(); };
  round.addEventListener("input", () => { stop(); step(); });
  alpha.addEventListener("input", () => { stop(); move(); });
  all("[data-step]", player).forEach((button) => button.addEventListener("click", () => { stop(); go(Number(button.dataset.step)); }));
  player.querySelector("[data-play]").addEventListener("click", (event) => {
    if (running) return stop();
    if (round.value === round.max) round.value = 0;
    event.target.textContent = "Stop";
    running = setInterval(() => { go(1); if (round.value === round.max) stop(); }, 120);
  });
  player.querySelector(".controls").hidden = false;
  step();
});
