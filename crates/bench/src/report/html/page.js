'use strict';
(() => {
  const root = document.documentElement;
  const tip = document.getElementById('tip');

  // ---- light and dark: as the system has it, until somebody says otherwise
  const remembered = () => { try { return localStorage.getItem('freshet-theme'); } catch { return null; } };
  const before = remembered();
  if (before === 'light' || before === 'dark') root.dataset.theme = before;
  document.getElementById('theme').addEventListener('click', () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    try { localStorage.setItem('freshet-theme', root.dataset.theme); } catch { /* a page of a file may remember nothing */ }
  });

  // ---- values: what stands in a title is shown at once, by pointer, tap and arrow keys
  let current = null;
  const show = (mark) => {
    if (current === mark) return;
    if (current) current.classList.remove('on');
    current = mark;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add('on');
    tip.textContent = mark.said;
    const at = mark.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const x = mark.tagName === 'use' ? at.left + at.width / 2 : at.left + at.width * 0.65;
    const above = at.top - size.height - 8;
    tip.style.left = `${Math.max(4, Math.min(x - size.width / 2, root.clientWidth - size.width - 4))}px`;
    tip.style.top = `${above > 4 ? above : at.bottom + 8}px`;
  };
  const distance = (mark, event) => {
    const at = mark.getBoundingClientRect();
    const outside = (low, value, high) => Math.max(low - value, 0, value - high);
    return Math.hypot(outside(at.left, event.clientX, at.right), outside(at.top, event.clientY, at.bottom));
  };
  for (const chart of document.querySelectorAll('.chart')) {
    const marks = [...chart.querySelectorAll('.v')];
    for (const mark of marks) {
      const title = mark.querySelector('title');
      mark.said = title.textContent;
      title.remove();
    }
    const nearest = (event) => {
      let best = null, least = 30;
      for (const mark of marks) {
        const far = distance(mark, event);
        if (far < least) [best, least] = [mark, far];
      }
      show(best);
    };
    chart.addEventListener('pointermove', nearest);
    chart.addEventListener('pointerdown', nearest);
    chart.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') show(null); });
    chart.addEventListener('blur', () => show(null));
    chart.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === 'Escape') show(null);
      if (!step || !marks.length) return;
      event.preventDefault();
      const at = marks.indexOf(current);
      show(marks[at < 0 ? (step > 0 ? 0 : marks.length - 1) : (at + step + marks.length) % marks.length]);
    });
  }
  addEventListener('scroll', () => show(null), { passive: true });

  // ---- the mean with other weights
  for (const table of document.querySelectorAll('table.mean')) {
    const weigh = () => {
      const sums = [...table.tFoot.rows[0].cells].map(() => [0, 0]);
      for (const row of table.tBodies[0].rows) {
        const weight = Math.max(0, Number(row.querySelector('input').value) || 0);
        [...row.cells].forEach((cell, column) => {
          if (!cell.dataset.ratio) return;
          sums[column][0] += weight * Math.log(Number(cell.dataset.ratio));
          sums[column][1] += weight;
        });
      }
      sums.forEach(([sum, weights], column) => {
        if (column < 2) return;
        table.tFoot.rows[0].cells[column].textContent = weights > 0 ? `${Math.exp(sum / weights).toFixed(2)}×` : '–';
      });
    };
    table.addEventListener('input', weigh);
  }

  // ---- the data
  for (const button of document.querySelectorAll('[data-download]')) {
    button.addEventListener('click', () => {
      const text = document.getElementById(button.dataset.download).textContent;
      const csv = button.dataset.download === 'csv';
      const blob = new Blob([csv ? JSON.parse(text) : text], { type: csv ? 'text/csv' : 'application/json' });
      const link = document.createElement('a');
      link.href = URL.createObjectURL(blob);
      link.download = button.dataset.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }

  // ---- on paper everything is open
  let closed = [];
  addEventListener('beforeprint', () => {
    closed = [...document.querySelectorAll('details:not([open])')];
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener('afterprint', () => closed.forEach((one) => { one.open = false; }));
})();
