for (const source of document.querySelectorAll('script[data-figure]')) {
  const spec = JSON.parse(source.textContent);
  Plotly.newPlot(source.dataset.figure, spec.data, {...spec.layout, autosize: true}, {
    responsive: true, displaylogo: false, modeBarButtons: [['toImage', 'resetScale2d']],
    toImageButtonOptions: {format: 'svg', filename: source.dataset.figure},
  });
}
