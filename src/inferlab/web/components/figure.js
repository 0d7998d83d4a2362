// A Plotly figure that is drawn when it comes near, and again only when it changes or its width does.
const NEAR = "600px";

export default {
  template: "<div></div>",
  props: { figure: String },
  mounted() {
    this.near = new IntersectionObserver(
      (seen) => {
        if (!seen.some((one) => one.isIntersecting)) return;
        this.near.disconnect();
        this.begin();
      },
      { rootMargin: NEAR },
    );
    this.near.observe(this.$el);
  },
  beforeUnmount() {
    this.gone = true;
    this.near.disconnect();
    this.observer?.disconnect();
    this.plotly?.purge(this.$el);
  },
  methods: {
    async begin() {
      const { Plotly } = await import("nicegui-plotly");
      if (this.gone) return;
      this.plotly = Plotly;
      await this.update();
      this.width = this.$el.clientWidth;
      // It also tells of the width that the figure was drawn with, which would draw thousands of bars twice.
      this.observer = new ResizeObserver(() => {
        const width = this.$el.clientWidth;
        if (!width || width === this.width) return;
        this.width = width;
        Plotly.Plots.resize(this.$el);
      });
      this.observer.observe(this.$el);
    },
    update() {
      const { data, layout, config } = JSON.parse(this.figure);
      return this.plotly?.react(this.$el, data, layout, config);
    },
  },
};
