'use strict';
/* The page of a prediction: rows of its tables light up in the predicted timeline, with intervals drawn. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  function bar({ low, high, at }, words) {
    const make = (name, className) => Object.assign(document.createElement(name), { className });
    const whole = document.createElement('span');
    const track = make('span', 'interval-bar small');
    const [range, mid] = [make('i', 'range'), make('b', 'mid')];
    range.style.left = `${100 * low}%`;
    range.style.width = `${100 * (high - low)}%`;
    mid.style.left = `${100 * at}%`;
    track.append(range, mid);
    whole.append(track, words);
    return whole;
  }

  async function start(page) {
    const unpacked = foretrace.unpack('data-predicted').then(({ document: said }) => said);
    const details = page.details.bind(page);
    let told = { groups: [], rows: [] };
    let rowOf = new Map();
    page.rowsOf = (data, row) => {
      const events = data.picks === 'groups' ? told.groups[row].events : [told.rows[row].event];
      return events.map((event) => page.lanes.rowOfEvent(event));
    };
    page.details = (row) => {
      const facts = details(row);
      const known = rowOf.get(page.timeline.columns.event[row]);
      if (!known) return [...facts, ['predicted', 'not measured']];
      const more = [['interval', known.interval], ['shape', known.shape], ['floor', known.floor], ['rests on', known.basis]];
      return [...facts, ['predicted', 'not measured'], ...more];
    };
    foretrace.cells.spread = (column, row) => {
      const cell = Object.assign(document.createElement('span'), { className: 'spread', textContent: column.values[row] });
      unpacked.then(({ groups }) => cell.replaceChildren(bar(groups[row], column.values[row])));
      return cell;
    };
    foretrace.cells.spread.width = 175; // px, of a bar and its ends
    told = await unpacked;
    rowOf = new Map(told.rows.map((row) => [row.event, row]));
  }

  document.addEventListener('DOMContentLoaded', () => {
    if (!document.getElementById('data-predicted')) return;
    foretrace.ready = Promise.all([foretrace.ready, start(foretrace.page)]);
  });
})();
